//! The place of a lock file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::failure;
use super::identity::{self, FileNames};
use super::kernel::Kernel;
use super::reserved_names;
use super::session_error::SessionError;

/// The place of a lock file, with all links followed.
#[derive(Clone, Debug)]
pub struct FileLocation {
    pub real: PathBuf,
    /// The directory of the owners' files.
    pub owners: PathBuf,
    pub names: Arc<FileNames>,
    pub kernel: Arc<Kernel>,
}

impl FileLocation {
    /// Finds the place that `path` leads to now.
    ///
    /// # Errors
    /// If another user may have planted a link on the way, or if the name of the file is reserved
    /// for files beside a lock file.
    pub fn of(path: &Path) -> Result<Self, SessionError> {
        let failed = |error| SessionError::Broken(failure::of_system(path, &error));
        let real = identity::resolve(path).map_err(failed)?;
        // The path may be a link.
        reserved_names::check(&real).map_err(failed)?;
        let mut owners = real.as_os_str().to_owned();
        owners.push(".owners");
        let kernel = Kernel::of(real.parent().unwrap_or(Path::new("/")));
        let names = FileNames::new(path, &real).map_err(failed)?;
        Ok(Self { real, owners: owners.into(), names: Arc::new(names), kernel: Arc::new(kernel) })
    }
}
