BEGIN { print(trace(1)); print(clear(@a)); }
