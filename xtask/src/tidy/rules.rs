//! The rules about packages. Each gives its violations, in words.

use super::deny::Skip;
use super::graph::{Graph, Package};
use spdx::{Expression, ParseMode};
use std::collections::{BTreeMap, BTreeSet};

/// Which of our crates each of them may use. ARCHITECTURE.md says why.
const ARROWS: [(&str, &[&str]); 13] = [
    ("speculation", &[]),
    ("kernels", &[]),
    ("models", &[]),
    ("proto", &["speculation"]),
    ("service", &["proto"]),
    ("engine", &["kernels", "speculation"]),
    ("grammar", &["speculation"]),
    ("coordinator", &["proto", "service", "speculation"]),
    (
        "worker",
        &[
            "proto",
            "service",
            "speculation",
            "engine",
            "grammar",
            "models",
        ],
    ),
    (
        "draft-worker",
        &[
            "proto",
            "service",
            "speculation",
            "engine",
            "models",
            "target-worker",
            "worker",
        ],
    ),
    ("target-worker", WORKER_ARROWS),
    ("xtask", &["models", "proto"]),
    (
        "specdec-tests",
        &[
            "coordinator",
            "draft-worker",
            "engine",
            "grammar",
            "models",
            "proto",
            "service",
            "speculation",
            "target-worker",
            "worker",
        ],
    ),
];

const WORKER_ARROWS: &[&str] = &[
    "proto",
    "service",
    "speculation",
    "engine",
    "models",
    "worker",
];

/// What a crate must not link, however indirectly. A name stands for its whole family: `candle`
/// for `candle-core` as well.
const UNLINKED: [(&str, &[&str]); 4] = [
    ("coordinator", &["candle"]),
    ("engine", &["tonic", "axum"]),
    ("speculation", &["candle", "tonic", "axum", "tokio"]),
    ("kernels", &["candle", "tonic", "axum", "tokio"]),
];

/// Our crates use each other only along the arrows.
pub(crate) fn arrows(graph: &Graph) -> Vec<String> {
    let allowed: BTreeMap<_, _> = ARROWS.into();
    let mut violations = Vec::new();
    for package in graph.ours() {
        let Some(allowed) = allowed.get(package.name.as_str()) else {
            violations.push(format!("{}: no arrow mentions this crate", package.name));
            continue;
        };
        let used = graph.direct(package).filter(|other| other.ours);
        for other in used.filter(|other| !allowed.contains(&other.name.as_str())) {
            violations.push(format!("{} must not use {}", package.name, other.name));
        }
    }
    violations
}

/// No crate links what it must know nothing of.
pub(crate) fn links(graph: &Graph) -> Vec<String> {
    let mut violations = Vec::new();
    for (name, unlinked) in UNLINKED {
        for package in graph.ours().filter(|package| package.name == name) {
            for family in unlinked {
                if let Some(chain) = graph.chain(package, |other| is_of(other, family)) {
                    let chain = chain.join(" → ");
                    violations.push(format!("{name} must not link {family}: {name} → {chain}"));
                }
            }
        }
    }
    violations
}

fn is_of(package: &Package, family: &str) -> bool {
    package
        .name
        .strip_prefix(family)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Every package comes under licences that we allow.
pub(crate) fn licences(graph: &Graph, allow: &[String]) -> Vec<String> {
    let mut violations = Vec::new();
    for package in &graph.packages {
        let Package { name, version, .. } = package;
        let Some(licence) = &package.licence else {
            violations.push(format!("{name} {version} states no licence"));
            continue;
        };
        match Expression::parse_mode(licence, ParseMode::LAX) {
            Ok(expression) => {
                if !expression.evaluate(|one| allow.contains(&one.to_string())) {
                    violations.push(format!(
                        "{name} {version}: the licence {licence} is not allowed"
                    ));
                }
            }
            Err(error) => violations.push(format!("{name} {version}: {}", error.reason)),
        }
    }
    violations
}

/// Of what we use directly, only one version is linked, but for `skip`.
pub(crate) fn single_versions(graph: &Graph, skip: &[Skip]) -> Vec<String> {
    let direct: BTreeSet<&str> = graph
        .ours()
        .flat_map(|package| &package.normal)
        .map(|place| graph.packages[*place].name.as_str())
        .collect();
    let mut versions: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for place in graph.linked() {
        let Package { name, version, .. } = &graph.packages[place];
        if direct.contains(name.as_str()) {
            let known = versions.entry(name).or_default();
            known.push(format!("{name}@{version}"));
        }
    }
    versions.retain(|_, known| known.len() > 1);
    let mut needed = vec![false; skip.len()];
    let mut violations = Vec::new();
    for known in versions.values_mut() {
        known.retain(|version| {
            let place = skip.iter().position(|skip| covers(&skip.package, version));
            place.inspect(|place| needed[*place] = true).is_none()
        });
        if known.len() > 1 {
            violations.push(format!("several versions are linked: {}", known.join(", ")));
        }
    }
    for (skip, _) in skip.iter().zip(needed).filter(|(_, needed)| !needed) {
        let Skip { package, reason } = skip;
        violations.push(format!("deny.toml need not skip {package} ({reason})"));
    }
    violations
}

/// Whether `name@1.2` covers `name@1.2.3`.
fn covers(skip: &str, version: &str) -> bool {
    version
        .strip_prefix(skip)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::super::graph::tests::graph;
    use super::*;

    #[test]
    fn a_crate_uses_only_what_the_arrows_allow() {
        let lines = ["engine 0.1 -> speculation", "speculation 0.1", "rand 0.9"];
        assert!(arrows(&graph(2, &lines)).is_empty());
        let lines = ["speculation 0.1 ~> engine", "engine 0.1", "odd 0.1"];
        assert_eq!(
            arrows(&graph(3, &lines)),
            [
                "speculation must not use engine",
                "odd: no arrow mentions this crate"
            ]
        );
    }

    #[test]
    fn a_link_is_found_behind_others_but_not_in_tests() {
        let lines = [
            "coordinator 0.1 -> tokenizers ~> candle-nn",
            "tokenizers 0.23 -> helper",
            "helper 1.0 -> candle-core",
            "candle-core 0.11",
            "candle-nn 0.11",
        ];
        assert_eq!(
            links(&graph(1, &lines)),
            ["coordinator must not link candle: coordinator → tokenizers → helper → candle-core"]
        );
        let lines = ["engine 0.1 -> tonics ~> tonic", "tonics 1.0", "tonic 0.14"];
        assert!(links(&graph(1, &lines)).is_empty());
    }

    #[test]
    fn a_licence_is_judged_as_an_expression() {
        let allow = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        let lines = [
            "a 1.0 MIT OR GPL-3.0-only",
            "b 1.0 MIT/Apache-2.0",
            "c 1.0 Apache-2.0 WITH LLVM-exception",
            "d 1.0 MIT AND GPL-3.0-only",
            "e 1.0",
            "f 1.0 MIT WITH LLVM-exception",
            "g 1.0 Whatever",
        ];
        let violations = licences(&graph(0, &lines), &allow);
        let names: Vec<&str> = violations.iter().map(|text| &text[..1]).collect();
        assert_eq!(names, ["d", "e", "f", "g"], "{violations:?}");
    }

    #[test]
    fn a_second_version_needs_a_reason_and_a_reason_a_second_version() {
        let lines = [
            "a 0.1 -> rand@0.9 x ~> rand@0.10",
            "rand 0.9 -> indirect@1",
            "x 1.0 -> rand@0.8 indirect@2",
            "rand 0.8.5",
            "rand 0.10",
            "indirect 1",
            "indirect 2",
        ];
        let graph = graph(1, &lines);
        let skip = |packages: &[&str]| -> Vec<Skip> {
            let skip = |package: &&str| Skip {
                package: (*package).to_owned(),
                reason: "old".to_owned(),
            };
            packages.iter().map(skip).collect()
        };
        assert_eq!(
            single_versions(&graph, &[]),
            ["several versions are linked: rand@0.9, rand@0.8.5"]
        );
        assert!(single_versions(&graph, &skip(&["rand@0.8"])).is_empty());
        assert_eq!(
            single_versions(&graph, &skip(&["rand@0.8", "rand@0.10"])),
            ["deny.toml need not skip rand@0.10 (old)"]
        );
    }
}
