/*
 * NAMESPACE/NAME of a pod of Kubernetes by its uid, "" where it is not known. Where logs of pods
 * are on the machine, dtrace puts a file in the place of this one that has their names.
 */
inline string _pod_of_logs[string uid] = "";
