#pragma D attributes x/y/z foo
#pragma D attributes Stable/Stable x
#pragma D attributes Best/Stable/Common x
BEGIN { x = 1; }
