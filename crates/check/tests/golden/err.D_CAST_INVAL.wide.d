/* Integers of more than 64 bits are objects. */
BEGIN { trace((u128)arg0); trace(*(u128 *)arg0 + 1); x = *(u128 *)arg0; trace(sizeof (u128)); trace(*(u128 *)arg0 == 0); }
