provider web {
	probe log(const char *format, ...);
};
