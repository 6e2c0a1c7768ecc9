ip:::send {}
pid123::malloc:entry {}
io:::start {}
