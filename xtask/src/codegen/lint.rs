//! Rules for `.proto` files that the compiler does not know: the package, a comment on everything,
//! and enums whose zero says that nothing was stated.

use protox::prost_reflect::prost_types::{
    DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    ServiceDescriptorProto,
};
use std::collections::HashSet;

const PACKAGE: &str = "specdec.v1";

/// Field numbers of the descriptor messages, which make up the paths of source locations.
mod tag {
    pub(super) const FILE_MESSAGE: i32 = 4;
    pub(super) const FILE_ENUM: i32 = 5;
    pub(super) const FILE_SERVICE: i32 = 6;
    pub(super) const MESSAGE_FIELD: i32 = 2;
    pub(super) const MESSAGE_NESTED: i32 = 3;
    pub(super) const MESSAGE_ENUM: i32 = 4;
    pub(super) const MESSAGE_ONEOF: i32 = 8;
    pub(super) const ENUM_VALUE: i32 = 2;
    pub(super) const SERVICE_METHOD: i32 = 2;
}

/// What is wrong with `descriptors`, which must carry source information; one line each.
pub(super) fn complaints(descriptors: &FileDescriptorSet) -> Vec<String> {
    descriptors.file.iter().flat_map(of_file).collect()
}

fn of_file(file: &FileDescriptorProto) -> Vec<String> {
    let mut lint = Lint::new(file);
    if file.package() != PACKAGE {
        lint.complain(file.name(), &format!("is not in package {PACKAGE}"));
    }
    for (index, message) in enumerated(&file.message_type) {
        lint.message(message, &[tag::FILE_MESSAGE, index]);
    }
    for (index, kind) in enumerated(&file.enum_type) {
        lint.enumeration(kind, &[tag::FILE_ENUM, index]);
    }
    for (index, service) in enumerated(&file.service) {
        lint.service(service, &[tag::FILE_SERVICE, index]);
    }
    lint.complaints
}

/// The walk over one file.
struct Lint {
    file: String,
    commented: HashSet<Vec<i32>>,
    complaints: Vec<String>,
}

impl Lint {
    fn new(file: &FileDescriptorProto) -> Self {
        let locations = file.source_code_info.iter().flat_map(|info| &info.location);
        Self {
            file: file.name().to_owned(),
            commented: locations
                .filter(|location| !location.leading_comments().trim().is_empty())
                .map(|location| location.path.clone())
                .collect(),
            complaints: Vec::new(),
        }
    }

    fn message(&mut self, message: &DescriptorProto, path: &[i32]) {
        let of = message.name();
        self.commented(of, path);
        for (index, field) in enumerated(&message.field) {
            let name = format!("{of}.{}", field.name());
            self.commented(&name, &under(path, tag::MESSAGE_FIELD, index));
        }
        for (index, oneof) in enumerated(&message.oneof_decl) {
            // An optional field is a oneof of its own, which no source line declares.
            let is_optional = oneof.name().starts_with('_');
            if !is_optional {
                let name = format!("{of}.{}", oneof.name());
                self.commented(&name, &under(path, tag::MESSAGE_ONEOF, index));
            }
        }
        // A map field has a message of its own, which no source line declares.
        let is_map = |message: &DescriptorProto| {
            message
                .options
                .as_ref()
                .is_some_and(|options| options.map_entry())
        };
        let nested = enumerated(&message.nested_type);
        for (index, nested) in nested.filter(|(_, nested)| !is_map(nested)) {
            self.message(nested, &under(path, tag::MESSAGE_NESTED, index));
        }
        for (index, kind) in enumerated(&message.enum_type) {
            self.enumeration(kind, &under(path, tag::MESSAGE_ENUM, index));
        }
    }

    fn enumeration(&mut self, kind: &EnumDescriptorProto, path: &[i32]) {
        self.commented(kind.name(), path);
        for (index, value) in enumerated(&kind.value) {
            let name = format!("{}.{}", kind.name(), value.name());
            self.commented(&name, &under(path, tag::ENUM_VALUE, index));
            if value.number() == 0 && !value.name().ends_with("_UNSPECIFIED") {
                self.complain(&name, "is zero and does not end in _UNSPECIFIED");
            }
        }
    }

    fn service(&mut self, service: &ServiceDescriptorProto, path: &[i32]) {
        self.commented(service.name(), path);
        for (index, method) in enumerated(&service.method) {
            let name = format!("{}.{}", service.name(), method.name());
            self.commented(&name, &under(path, tag::SERVICE_METHOD, index));
        }
    }

    fn commented(&mut self, name: &str, path: &[i32]) {
        if !self.commented.contains(path) {
            self.complain(name, "has no comment before it");
        }
    }

    fn complain(&mut self, name: &str, problem: &str) {
        self.complaints
            .push(format!("{}: {name} {problem}", self.file));
    }
}

/// Items with their place, as source locations count it.
fn enumerated<T>(items: &[T]) -> impl Iterator<Item = (i32, &T)> {
    (0..).zip(items)
}

fn under(path: &[i32], tag: i32, index: i32) -> Vec<i32> {
    [path, &[tag, index]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints_about(source: &str) -> Vec<String> {
        let folder = tempfile::tempdir().expect("temporary folder");
        std::fs::write(folder.path().join("a.proto"), source).expect("write");
        let mut compiler = protox::Compiler::new([folder.path()]).expect("a folder");
        compiler.include_source_info(true);
        compiler.open_files(["a.proto"]).expect("compiles");
        complaints(&compiler.file_descriptor_set())
    }

    #[test]
    fn a_file_by_the_rules_passes() {
        let complaints = complaints_about(
            "syntax = 'proto3'; package specdec.v1;
            // A message.
            message M {
              // A field.
              optional uint32 field = 1;
              // A choice.
              oneof choice {
                // One.
                uint32 one = 2;
              }
            }
            // A kind.
            enum Kind {
              // Not stated.
              KIND_UNSPECIFIED = 0;
            }
            // A service.
            service S {
              // A call.
              rpc Call(M) returns (M);
            }",
        );
        assert_eq!(complaints, [""; 0]);
    }

    #[test]
    fn everything_without_a_comment_is_named() {
        let complaints = complaints_about(
            "syntax = 'proto3'; package specdec.v1;
            message M { uint32 field = 1; oneof choice { uint32 one = 2; } enum Inner { INNER_UNSPECIFIED = 0; } }
            service S { rpc Call(M) returns (M); }",
        );
        let named: Vec<_> = complaints
            .iter()
            .filter_map(|line| {
                line.strip_prefix("a.proto: ")?
                    .strip_suffix(" has no comment before it")
            })
            .collect();
        assert_eq!(
            named,
            [
                "M",
                "M.field",
                "M.one",
                "M.choice",
                "Inner",
                "Inner.INNER_UNSPECIFIED",
                "S",
                "S.Call"
            ]
        );
    }

    #[test]
    fn a_foreign_package_and_a_meaningful_zero_are_refused() {
        let complaints = complaints_about(
            "syntax = 'proto3'; package other;
            // A kind.
            enum Kind {
              // Zero.
              KIND_FIRST = 0;
            }",
        );
        assert_eq!(
            complaints,
            [
                "a.proto: a.proto is not in package specdec.v1",
                "a.proto: Kind.KIND_FIRST is zero and does not end in _UNSPECIFIED",
            ]
        );
    }
}
