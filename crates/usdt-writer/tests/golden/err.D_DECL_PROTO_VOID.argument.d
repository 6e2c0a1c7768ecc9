provider web {
	probe none(void);
	probe start(int a, void b);
};
