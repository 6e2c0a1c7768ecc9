/* There is nothing of which it could write the last moments. */
BEGIN { snap("x"); }
