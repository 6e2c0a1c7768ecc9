BEGIN /execname/ {}
