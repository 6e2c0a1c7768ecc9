/* library */
provider stable[uid] { probe one(); };
kern:::mark { one(); }
/* script */
BEGIN {}
