BEGIN {}
END { x = 1; }
