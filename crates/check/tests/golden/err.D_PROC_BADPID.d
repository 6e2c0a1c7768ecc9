BEGIN { }
pid01:a.out:main:entry { }
pid0:a.out:main:entry,
pid99999999999:libc::entry { }
tst0:::probe { }
