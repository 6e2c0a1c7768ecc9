/* library */
provider stable7 { probe one(); };
kern:::mark { one(); }
/* script */
BEGIN {}
