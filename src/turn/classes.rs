//! Which class each tool belongs to, by globs on its name. Never reads a request.

use globset::{Glob, GlobSet, GlobSetBuilder};

use crate::model::ToolClass;

/// Globs on tool names, by class. Names are compared in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolClasses {
    /// Search and listing.
    pub bulk: Vec<String>,
    /// Reading files.
    pub read: Vec<String>,
    /// Running commands.
    pub shell: Vec<String>,
    /// Changing files.
    pub write: Vec<String>,
}

impl Default for ToolClasses {
    fn default() -> Self {
        let list = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Self {
            bulk: list(&[
                "grep",
                "glob",
                "ls",
                "find",
                "search",
                "list",
                "list_*",
                "*_search",
                "search_*",
                "websearch",
                "webfetch",
                "web_fetch",
                "fetch",
                "codebase_search",
                "tool_search",
            ]),
            read: list(&[
                "read",
                "read_*",
                "view",
                "cat",
                "open",
                "open_file",
                "notebookread",
            ]),
            shell: list(&[
                "bash",
                "shell",
                "sh",
                "exec",
                "exec_command",
                "execute_*",
                "run",
                "run_*",
                "local_shell",
                "terminal",
                "container.exec",
            ]),
            write: list(&[
                "write",
                "write_*",
                "edit",
                "edit_*",
                "multiedit",
                "create",
                "create_*",
                "apply_patch",
                "patch",
                "str_replace*",
                "replace*",
                "insert*",
                "notebookedit",
            ]),
        }
    }
}

/// Tool classes compiled for matching.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    sets: Vec<(ToolClass, GlobSet)>,
}

/// A glob of a tool class that can't be read.
#[derive(Debug, thiserror::Error)]
#[error("write {glob:?} as a glob on tool names, such as \"list_*\": {cause}")]
pub struct GlobError {
    /// The glob.
    pub glob: String,
    /// What is wrong with it.
    pub cause: String,
}

impl GlobError {
    fn new(glob: String, cause: &globset::Error) -> Self {
        Self {
            glob,
            cause: cause.to_string(),
        }
    }
}

impl Classes {
    /// Compiles the lists; the first class whose list matches a name has it.
    ///
    /// # Errors
    /// [`GlobError`] for the first glob that can't be read.
    pub fn new(classes: &ToolClasses) -> Result<Self, GlobError> {
        let lists = [
            (ToolClass::Bulk, &classes.bulk),
            (ToolClass::Read, &classes.read),
            (ToolClass::Shell, &classes.shell),
            (ToolClass::Write, &classes.write),
        ];
        let mut sets = Vec::with_capacity(lists.len());
        for (class, globs) in lists {
            let mut set = GlobSetBuilder::new();
            for glob in globs {
                let read = Glob::new(&glob.to_lowercase());
                set.add(read.map_err(|cause| GlobError::new(glob.clone(), &cause))?);
            }
            let set = set.build();
            let set = set.map_err(|cause| GlobError::new(globs.join(" "), &cause))?;
            sets.push((class, set));
        }
        Ok(Self { sets })
    }

    /// The class of a tool. Names are compared in lower case.
    #[must_use]
    pub fn of(&self, name: &str) -> ToolClass {
        let name = name.to_lowercase();
        let found = self.sets.iter().find(|(_, set)| set.is_match(&name));
        found.map_or(ToolClass::Unknown, |(class, _)| *class)
    }
}
