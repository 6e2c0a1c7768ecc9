provider web {
	probe start(int a;
	probe stop();
	prob end();
};
