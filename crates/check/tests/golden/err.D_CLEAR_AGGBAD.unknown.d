BEGIN { @writes = count(); }
END { clear(@write); }
