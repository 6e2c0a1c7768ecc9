/*
 * The CPU of each record, and a record that comes after a later one.
 *
 * probe disk sd io start
 * probe disk sd io done
 * cpus 2
 * fire disk:::start cpu=0 time=10
 * fire disk:::start cpu=1 time=30
 * fire disk:::start cpu=0 time=20
 */
disk:::start { trace(timestamp); }
