struct zzq;
struct zzq x[3];
BEGIN { }
