enum color { COLOR_RED = 1, COLOR_GREEN, COLOR_BLUE = 7, DARK = -3, COLOR_LIME = 2 };
BEGIN { x = 1; }
BEGIN { trace(_enumerator[(enum color)x, "COLOR_"]); }
BEGIN { trace(_enumerator[COLOR_RED]); }
