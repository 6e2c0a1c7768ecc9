int arr[3];
self int mine[2];
BEGIN { arr++; }
BEGIN { --self->mine; }
BEGIN { arr += 1; }
