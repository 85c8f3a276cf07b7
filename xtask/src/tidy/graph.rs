//! The packages and what uses what.

use anyhow::{Context as _, Result};
use cargo_metadata::{DependencyKind, Metadata, NodeDep};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// All packages that cargo resolved.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) packages: Vec<Package>,
}

/// One package. Others are named by their place in [`Graph::packages`].
#[derive(Debug, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) licence: Option<String>,
    /// Whether it belongs to this workspace.
    pub(crate) ours: bool,
    /// What its library or program uses.
    pub(crate) normal: Vec<usize>,
    /// What only its tests or its build script use.
    pub(crate) other: Vec<usize>,
}

impl Graph {
    /// The graph of what cargo resolved.
    pub(crate) fn from_metadata(metadata: &Metadata) -> Result<Self> {
        let places: HashMap<_, _> = metadata
            .packages
            .iter()
            .enumerate()
            .map(|(place, package)| (&package.id, place))
            .collect();
        let mut packages: Vec<Package> = metadata
            .packages
            .iter()
            .map(|package| Package {
                name: package.name.to_string(),
                version: package.version.to_string(),
                licence: package.license.clone(),
                ours: metadata.workspace_members.contains(&package.id),
                ..Package::default()
            })
            .collect();
        let resolve = metadata.resolve.as_ref().context("nothing is resolved")?;
        for node in &resolve.nodes {
            let package = &mut packages[places[&node.id]];
            for dependency in &node.deps {
                let place = places[&dependency.pkg];
                if is_normal(dependency) {
                    package.normal.push(place);
                } else {
                    package.other.push(place);
                }
            }
        }
        Ok(Self { packages })
    }

    /// The packages of this workspace.
    pub(crate) fn ours(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.ours)
    }

    /// The packages that `package` names directly, for whatever purpose.
    pub(crate) fn direct<'a>(&'a self, package: &'a Package) -> impl Iterator<Item = &'a Package> {
        let places = package.normal.iter().chain(&package.other);
        places.map(|place| &self.packages[*place])
    }

    /// The shortest chain of normal dependencies from `start` to a package that `wanted` accepts.
    pub(crate) fn chain(
        &self,
        start: &Package,
        wanted: impl Fn(&Package) -> bool,
    ) -> Option<Vec<&str>> {
        let mut seen: BTreeSet<usize> = start.normal.iter().copied().collect();
        let mut queue: VecDeque<Vec<usize>> =
            start.normal.iter().map(|place| vec![*place]).collect();
        while let Some(chain) = queue.pop_front() {
            let package = &self.packages[*chain.last()?];
            if wanted(package) {
                let names = chain
                    .iter()
                    .map(|place| self.packages[*place].name.as_str());
                return Some(names.collect());
            }
            for next in &package.normal {
                if seen.insert(*next) {
                    queue.push_back(chain.iter().chain([next]).copied().collect());
                }
            }
        }
        None
    }

    /// Everything that our libraries and programs link.
    pub(crate) fn linked(&self) -> BTreeSet<usize> {
        let mut seen = BTreeSet::new();
        let mut stack: Vec<usize> = (0..self.packages.len())
            .filter(|place| self.packages[*place].ours)
            .collect();
        while let Some(place) = stack.pop() {
            if seen.insert(place) {
                stack.extend(&self.packages[place].normal);
            }
        }
        seen
    }
}

fn is_normal(dependency: &NodeDep) -> bool {
    dependency
        .dep_kinds
        .iter()
        .any(|kind| kind.kind == DependencyKind::Normal)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A graph from lines such as `a 1.0 MIT -> b c ~> d`, where `->` are normal dependencies and
    /// `~>` others, both by name or `name@version`. The first `ours` lines are this workspace's.
    pub(crate) fn graph(ours: usize, lines: &[&str]) -> Graph {
        let split: Vec<(Vec<&str>, Vec<&str>, Vec<&str>)> = lines
            .iter()
            .map(|line| {
                let (rest, other) = line.split_once("~>").unwrap_or((line, ""));
                let (head, normal) = rest.split_once("->").unwrap_or((rest, ""));
                let words = |text| str::split_whitespace(text).collect();
                (words(head), words(normal), words(other))
            })
            .collect();
        let find = |name: &&str| {
            let (name, version) = name.split_once('@').unwrap_or((name, ""));
            let found = split
                .iter()
                .position(|(head, ..)| head[0] == name && head[1].starts_with(version));
            found.unwrap_or_else(|| panic!("no package {name}"))
        };
        let package =
            |(place, (head, normal, other)): (usize, &(Vec<&str>, Vec<_>, Vec<_>))| Package {
                name: head[0].to_owned(),
                version: head[1].to_owned(),
                licence: (head.len() > 2).then(|| head[2..].join(" ")),
                ours: place < ours,
                normal: normal.iter().map(find).collect(),
                other: other.iter().map(find).collect(),
            };
        Graph {
            packages: split.iter().enumerate().map(package).collect(),
        }
    }
}
