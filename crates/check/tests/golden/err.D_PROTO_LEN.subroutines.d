BEGIN { trace(substr("a")); trace(index("a", "b", 1, 2)); trace(rand(1)); trace(strjoin("a")); trace(json()); }
