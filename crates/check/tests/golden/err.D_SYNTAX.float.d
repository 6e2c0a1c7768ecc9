/* row token.float-refused */
BEGIN { trace(1.5); trace(1e10); trace(.5); x = 2.0f; }
