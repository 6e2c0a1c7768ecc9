provider web {
	probe a_b();
	probe a__b();
};
