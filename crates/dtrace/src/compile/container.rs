//! Containers: what `-x container=` names, the condition by which only what runs there is traced,
//! and the names of pods that `podname` knows.
//!
//! A container is known by its control group. Groups that there are at the start are compared by
//! their numbers, with those above the group of the thread: groups that are made below later are in
//! the container, too. A container that has no group yet, named by its whole id or as Docker knows
//! it, is compared by `containerid`, from its first process on.
//!
//! The condition is put before the predicates of programs. What is of no thread is in
//! `lib/container.d`: probes of the session and its clocks fire as they do without, and what fires
//! in an interrupt is of no container, except what samples the thread that was interrupted.

use std::collections::BTreeSet;
use std::path::Path;

use diagnostics::{Sink, SourceKind, SourceMap};
use proc::containers::{self, Group, Hierarchy};
use syntax::ast::{BinaryOp, Expr, ExprKind, Item, ProbeDesc, ProbeDescKind, Program as Tree};
use syntax::{Libraries, MacroEnv, ParseMode};
use system::System;

use crate::compile::lookup::TypedefNames;

/// Where Docker keeps what it knows of its containers, unless it is told otherwise.
const DOCKER: &str = "/var/lib/docker/containers";

/// Where the logs of the pods of Kubernetes are.
const PODS: &str = "/var/log/pods";

/// Pods whose names a program knows, at most: a machine has 110, unless it is told otherwise. Each
/// use of `podname` takes some ten operations for each of them.
const MOST_PODS: usize = 128;

/// The shortest beginning of an id that names a container.
const SHORTEST: usize = 4;

/// Paths that a message shows.
const SHOWN: usize = 5;

/// What is traced: everything in these groups, and in containers with these ids.
#[derive(Default)]
pub(crate) struct Containers {
    groups: Vec<Group>,
    ids: Vec<String>,
}

impl Containers {
    /// The containers that the words of the option name.
    pub(crate) fn find(words: &[String], system: &System) -> Result<Containers, String> {
        let mut found = Containers::default();
        if words.is_empty() {
            return Ok(found);
        }
        if !system.is_live() {
            return Err("option container: containers are those of the running system".into());
        }
        let groups = containers::groups().map_err(|why| format!("option container: {why}"))?;
        for word in words {
            let of_docker = containers::of_docker(Path::new(DOCKER), word);
            let pods = containers::pods(Path::new(PODS), usize::MAX).into_iter();
            let pods = pods.filter(|(_, pod)| is_called(pod, word));
            let pods: Vec<String> = pods.map(|(uid, _)| uid).collect();
            found.add(word, &groups, of_docker, &pods).map_err(|why| format!("option container: {why}"))?;
        }
        Ok(found)
    }

    /// Adds what a word names, of all groups that there are; Docker has this name for containers of
    /// these ids, and pods with these uids are called so.
    fn add(
        &mut self,
        word: &str,
        groups: &[Group],
        of_docker: Vec<String>,
        pods: &[String],
    ) -> Result<(), String> {
        let shown = |text: &str| diagnostics::control::name(text.as_bytes()).to_string();
        if word.is_empty() {
            return Err("it names no container".into());
        }
        let begins = |id: &str| containers::is_id(id) && word.len() >= SHORTEST && id.starts_with(word);
        let is_meant = |group: &&Group| match word.strip_prefix('/') {
            Some(_) => group.path == word.trim_end_matches('/'),
            None => {
                let by_id = |id: &str| id == word || begins(id) || of_docker.iter().any(|one| one == id);
                containers::container_at(&group.path).is_some_and(by_id)
                    || containers::pod_at(&group.path).is_some_and(|uid| uid == word || pods.contains(&uid))
            }
        };
        let all: Vec<&Group> = groups.iter().filter(is_meant).collect();
        // A group is at one path in each hierarchy.
        let paths: BTreeSet<&str> = all.iter().map(|group| group.path.as_str()).collect();
        if paths.len() > 1 {
            let some: Vec<String> = paths.iter().take(SHOWN).map(|path| shown(path)).collect();
            return Err(format!(
                "\"{}\" names {} control groups: take the path of one, as {}",
                shown(word),
                paths.len(),
                some.join(" or ")
            ));
        }
        if !all.is_empty() {
            self.groups.extend(all.into_iter().cloned());
            return Ok(());
        }
        match of_docker.len() {
            0 if containers::is_id(word) => self.ids.push(word.into()),
            0 => {
                return Err(format!(
                    "no container \"{}\" runs: take its id, the beginning of that ({SHORTEST} characters at \
                     least), the name that Docker has for it, the name or the uid of a pod, or the path of a \
                     control group",
                    shown(word)
                ));
            }
            1 => self.ids.extend(of_docker),
            n => return Err(format!("Docker knows {n} containers \"{}\": take an id", shown(word))),
        }
        Ok(())
    }

    /// The processes of a selection that are in the groups, if the option is set.
    pub(crate) fn narrow(&self, selection: proc::Selection) -> proc::Selection {
        if self.groups.is_empty() && self.ids.is_empty() {
            return selection;
        }
        selection.narrowed_to(self.groups.iter().map(|group| group.path.clone()).collect())
    }

    /// The condition in D that a thread is in one of them; empty if the option is not set.
    fn condition(&self) -> String {
        let of_group = |group: &Group| {
            let hierarchy = match group.hierarchy {
                Hierarchy::Unified => "unified",
                Hierarchy::Pids => "pids",
                Hierarchy::Memory => "memory",
            };
            format!("_is_below[_group_{hierarchy}, {}, {}ull]", group.level, group.id)
        };
        let of_id = |id: &String| format!("containerid == \"{id}\"");
        let all: Vec<String> = self.groups.iter().map(of_group).chain(self.ids.iter().map(of_id)).collect();
        all.join(" || ")
    }

    /// Puts the condition before the predicates of programs.
    pub(crate) fn restrict(
        &self,
        trees: &mut [Tree],
        (libraries, map): (&mut Libraries, &mut SourceMap),
        system: &System,
        sink: &mut Sink,
    ) {
        let condition = self.condition();
        if condition.is_empty() {
            return;
        }
        let env = MacroEnv::default();
        let mut parsed = |text: String| {
            libraries.load(&[text.as_str()], map, &env, sink);
            let file = map.add(SourceKind::Library, "-x container", text);
            let names = TypedefNames { libraries: &*libraries, kernel: system.types() };
            let tree = syntax::parse(map, file, ParseMode::Script, &env, &names, sink);
            tree.items.into_iter().find_map(|item| match item {
                Item::Clause(clause) => clause.predicate,
                _ => None,
            })
        };
        // The second one is right for every probe; the first costs less.
        let of_threads = parsed(format!("BEGIN /({condition}) && ipl == 0/ {{}}"));
        let of_all =
            parsed(format!("BEGIN /({condition}) && (ipl == 0 || _is_sample) || _is_of_session/ {{}}"));
        let (Some(of_threads), Some(of_all)) = (of_threads, of_all) else { return };
        for item in trees.iter_mut().flat_map(|tree| &mut tree.items) {
            let Item::Clause(clause) = item else { continue };
            let condition = match clause.probes.iter().any(may_be_of_no_thread) {
                true => &of_all,
                false => &of_threads,
            };
            let kind = match clause.predicate.take() {
                None => condition.kind.clone(),
                Some(own) => ExprKind::Binary {
                    op: BinaryOp::LogAnd,
                    op_span: own.span,
                    left: Box::new(condition.clone()),
                    right: Box::new(own),
                },
            };
            clause.predicate = Some(Expr { kind, span: clause.span });
        }
    }
}

/// True if a pod, `NAMESPACE/NAME`, is meant by a word, with or without its namespace.
fn is_called(pod: &str, word: &str) -> bool {
    pod == word || pod.split_once('/').is_some_and(|(_, name)| name == word)
}

/// Lets `podname` know the pods whose logs are on this machine.
pub(crate) fn add_pods(libraries: &mut Libraries) {
    let pods: Vec<_> = containers::pods(Path::new(PODS), MOST_PODS).into_iter().collect();
    if !pods.is_empty() {
        let text = format!("inline string _pod_of_logs[string uid] = {};\n", choice(&pods));
        libraries.add("pod_names.d", text, false);
    }
}

/// The name of a pod by its uid, by halving.
fn choice(pods: &[(String, String)]) -> String {
    match pods {
        [] => "\"\"".into(),
        [(uid, name)] => format!("(uid == \"{uid}\" ? \"{name}\" : \"\")"),
        _ => {
            let (left, right) = pods.split_at(pods.len() / 2);
            let from = right.first().map_or("", |(uid, _)| uid);
            format!("(uid < \"{from}\" ?\n    {} : {})", choice(left), choice(right))
        }
    }
}

/// May match a probe of the session, a clock or a sample.
fn may_be_of_no_thread(desc: &ProbeDesc) -> bool {
    match &desc.kind {
        ProbeDescKind::Fields { provider, .. } => providers::may_be_of_no_thread(&provider.text),
        ProbeDescKind::Id(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_found_by_halves() {
        let pods = ["a", "b", "c"].map(|uid| (uid.to_string(), format!("ns/{uid}")));
        assert_eq!(choice(&[]), "\"\"");
        let of = |uid: &str| format!("(uid == \"{uid}\" ? \"ns/{uid}\" : \"\")");
        let (a, b, c) = (of("a"), of("b"), of("c"));
        assert_eq!(choice(&pods), format!("(uid < \"b\" ?\n    {a} : (uid < \"c\" ?\n    {b} : {c}))"));
    }

    #[test]
    fn names_of_pods_are_put_in_the_place_of_a_library() {
        assert!(Libraries::embedded().has("pod_names.d"));
    }

    #[test]
    fn containers_are_named_by_what_is_unique() {
        let id = |first: char| {
            format!("{first}{}", "0123456789abcdef".repeat(4)).chars().take(64).collect::<String>()
        };
        let (a, b) = (id('a'), id('a').replace("def", "fed"));
        let pod = "0123456789abcdef0123456789abcdef";
        let paths = [
            format!("/docker/{a}"),
            format!("/x/libpod-{b}.scope"),
            "/lxc/web".into(),
            "/user/web".into(),
            format!("/kubepods/pod{pod}"),
            "/lxc/two".into(),
            "/user/lxc.payload.two".into(),
        ];
        let group =
            |(id, path): (u64, &String), hierarchy| Group { path: path.clone(), level: 2, id, hierarchy };
        let mut groups: Vec<Group> = (7..).zip(&paths).map(|one| group(one, Hierarchy::Unified)).collect();
        groups.push(group((70, &paths[0]), Hierarchy::Pids));
        let named = |word: &str, of_docker: Vec<String>| {
            let mut found = Containers::default();
            found
                .add(word, &groups, of_docker, &[pod.to_owned()][..usize::from(is_called("shop/api", word))])
                .map(|()| found.condition())
        };
        let find = |word: &str| named(word, Vec::new());
        let unknown = "f".repeat(64);
        let both = "_is_below[_group_unified, 2, 7ull] || _is_below[_group_pids, 2, 70ull]";
        for (word, condition) in [
            (a.as_str(), both.to_string()),
            (b.as_str(), "_is_below[_group_unified, 2, 8ull]".into()),
            // A group of a user that is called like it is no container.
            ("web", "_is_below[_group_unified, 2, 9ull]".into()),
            ("/user/web/", "_is_below[_group_unified, 2, 10ull]".into()),
            (pod, "_is_below[_group_unified, 2, 11ull]".into()),
            ("api", "_is_below[_group_unified, 2, 11ull]".into()),
            ("shop/api", "_is_below[_group_unified, 2, 11ull]".into()),
            (unknown.as_str(), format!("containerid == \"{unknown}\"")),
        ] {
            assert_eq!(find(word), Ok(condition), "{word}");
        }
        assert_eq!(
            find("a012").unwrap_err(),
            format!("\"a012\" names 2 control groups: take the path of one, as {} or {}", paths[0], paths[1])
        );
        assert!(find("two").unwrap_err().starts_with("\"two\" names 2 control groups"));
        assert_eq!(named("shop", vec![a.clone()]), Ok(both.into()));
        assert_eq!(named("shop", vec![unknown.clone()]), Ok(format!("containerid == \"{unknown}\"")));
        // What one user calls like a container of another hides none.
        assert!(named("web", vec![a]).unwrap_err().starts_with("\"web\" names 2 control groups"));
        assert!(named("shop", vec![unknown.clone(), "e".repeat(64)]).is_err());
        for word in ["we", "a01", "a0123z", "", "\u{1b}[31m", "/", "/lxc"] {
            assert!(find(word).is_err(), "{word}");
        }
        assert!(!find("\u{1b}x").unwrap_err().contains('\u{1b}'));
    }
}
