#pragma D attribute Stable/Stable/Common x
#pragma D nonsense
#pragma D binding "1.99" x
#pragma D binding "one" x
BEGIN { x = 1; }
