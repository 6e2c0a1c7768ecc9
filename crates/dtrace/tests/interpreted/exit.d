/*
 * The first exit() ends tracing: no clause and no probe after it fires, but END does.
 *
 * probe disk sd io start
 * probe disk sd io done
 * fire disk:::start args=1
 * fire disk:::start args=2
 * fire disk:::start args=3
 */
disk:::start /arg0 == 2/ { exit(3); }
disk:::start { trace(arg0); }
END { trace("end"); }
