/* library */
provider each[pid] { probe one(); };
provider all { probe two(); };
kern:::mark { one(); two(); }
/* script */
BEGIN {}
