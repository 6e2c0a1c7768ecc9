provider high {
	probe again(int n, int of);
};

work:::done /args[0] > 100/ { self->many++; again(self->many, args[1]); }
