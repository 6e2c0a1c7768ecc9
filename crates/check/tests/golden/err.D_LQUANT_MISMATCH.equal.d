BEGIN { @ = lquantize(1, 5, 5); }
