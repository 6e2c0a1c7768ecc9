fbt::vfs_read:entry {}
pid123::malloc:entry {}
io:::start {}
