/*
 * Containers and pods, by the names of control groups alone: no daemon is asked, and the name of a group is known as
 * long as a process is in it. The forms of names are in crates/bpf-codegen/src/select/subr/container.rs.
 *
 * The group of a process is that of the unified hierarchy. Where the controllers pids and memory are in hierarchies of
 * version 1, a manager may have put the process in a group of these only: pids, the unified one and memory are
 * looked at in this order.
 */
inline struct cgroup *_group_unified = curthread->cgroups->dfl_cgrp;
inline struct cgroup *_group_apart[struct cgroup *G] = G->level == 0 || G->root == _group_unified->root ? NULL : G;
inline struct cgroup *_group_of[struct cgroup_subsys_state *S] = S == NULL ? NULL : _group_apart[S->cgroup];
inline struct cgroup *_group_pids = _group_of[curthread->cgroups->subsys[pids_cgrp_id]];
inline struct cgroup *_group_memory = _group_of[curthread->cgroups->subsys[memory_cgrp_id]];

inline string _group_name[struct cgroup *G] = G == NULL || G->level == 0 ? "" : stringof(G->kn->name);
inline string _group_or_root[string name] = name != "" ? name : "/";
inline string _group_or_memory[string name] = name != "" ? name : _group_or_root[_group_name[_group_memory]];
inline string _group_or_unified[string name] = name != "" ? name : _group_or_memory[_group_name[_group_unified]];
inline string cgroupname = _group_or_unified[_group_name[_group_pids]];

inline string _pod_in[struct cgroup *G] = G == NULL || G->level == 0 ? "" : _pod(G);
inline string _pod_or_memory[string uid] = uid != "" ? uid : _pod_in[_group_memory];
inline string _pod_or_unified[string uid] = uid != "" ? uid : _pod_or_memory[_pod_in[_group_unified]];
inline string poduid = _pod_or_unified[_pod_in[_group_pids]];

/*
 * The name of the pod: that of its logs, else the name of the host that the process sees, marked. A pod that shares
 * the names of its node has none.
 */
inline string _pod_or_host[string name, string uid] = uid == "" ? "" : name != "" ? name :
    curthread->nsproxy == NULL || curthread->nsproxy->uts_ns->ns.inum == 0xeffffffe ? "?" :
    strjoin("?/", stringof(curthread->nsproxy->uts_ns->name.nodename));
inline string _pod_called[string uid] = _pod_or_host[_pod_of_logs[uid], uid];
inline string podname = _pod_called[poduid];

/*
 * A container without one of the forms is known as crun makes it without systemd: its group is the root of its
 * namespace of groups. Services have such namespaces, too.
 */
inline string _unless_service[string name] = substr(name, -8) == ".service" ? "" : name;
inline string _namespace_group = curthread->nsproxy == NULL ||
    curthread->nsproxy->cgroup_ns->ns.inum == 0xeffffffb ? "" :
    _unless_service[_group_name[curthread->nsproxy->cgroup_ns->root_cset->dfl_cgrp]];
inline string _container_in[struct cgroup *G] = G == NULL || G->level == 0 ? "" : _container(G);
inline string _container_or_namespace[string id] = id != "" ? id : _namespace_group;
inline string _container_or_memory[string id] = id != "" ? id : _container_or_namespace[_container_in[_group_memory]];
inline string _container_or_unified[string id] = id != "" ? id :
    _container_or_memory[_container_in[_group_unified]];
inline string containerid = _container_or_unified[_container_in[_group_pids]];

/* -x container: is a group this one, or below it? */
inline uint64_t _group_above[struct cgroup *G, int level] =
    defined(struct cgroup, ancestors) ? G->ancestors[level]->kn->id : G->ancestor_ids[level];
inline int _is_below[struct cgroup *G, int level, uint64_t id] =
    G != NULL && G->level >= level && _group_above[G, level] == id;
/* The probes that fire for the session, and those that sample what was interrupted. */
inline int _is_of_session = probeprov == "dtrace" || (probeprov == "profile" && substr(probename, 0, 5) == "tick-");
inline int _is_sample = probeprov == "profile" || probeprov == "cpc";

#pragma D attributes Stable/Stable/Common cgroupname
#pragma D attributes Stable/Stable/Common containerid
#pragma D attributes Stable/Stable/Common podname
#pragma D attributes Stable/Stable/Common poduid
