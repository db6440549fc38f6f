//! Libraries of the system that are loaded when they are first needed, so that Weir runs where they are missing.
//!
//! Owns the loading; callers declare their functions with [`functions`]. Never unloads one:
//! libraries leave threads' and exit handlers behind.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_void};
use std::ptr::NonNull;

/// A library in memory, for good.
pub(crate) struct Library {
    handle: NonNull<c_void>,
}

impl Library {
    /// Loads the first of these that is there.
    ///
    /// # Errors
    /// None is; what the loader said of the first.
    pub(crate) fn open(names: &[&str]) -> Result<Library, String> {
        let mut told = None;
        for name in names {
            let Ok(name) = CString::new(*name) else { continue };
            // SAFETY: the name is a C string; initialisers of system libraries are trusted as those we link are.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            match NonNull::new(handle) {
                Some(handle) => return Ok(Library { handle }),
                None => told = told.or(last_error()),
            }
        }
        Err(told.unwrap_or_else(|| "not found".to_owned()))
    }

    /// The address of a function.
    ///
    /// # Errors
    /// The library has none of that name.
    pub(crate) fn function(&self, name: &str) -> Result<NonNull<c_void>, String> {
        let symbol = CString::new(name).map_err(|fault| fault.to_string())?;
        // SAFETY: the handle is that of a loaded library, and the name is a C string.
        let address = unsafe { libc::dlsym(self.handle.as_ptr(), symbol.as_ptr()) };
        NonNull::new(address).ok_or_else(|| format!("it has no {name}"))
    }
}

/// What the loader says of its last failure on this thread.
fn last_error() -> Option<String> {
    // SAFETY: dlerror gives NULL or a C string that lives until the next call of the loader on this thread.
    let text = unsafe { libc::dlerror() };
    // SAFETY: it is not NULL, and is copied before anything else happens.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Makes a struct of C functions, each of which may be called as `(api.name)(…)`, and a `load` that finds them all.
macro_rules! functions {
    ($(#[$doc:meta])* $name:ident { $($function:ident: fn($($argument:ty),*) -> $result:ty;)* }) => {
        $(#[$doc])*
        struct $name {
            // SAFETY: callers keep to its manual page.
            $($function: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl $name {
            fn load(names: &[&str]) -> Result<$name, String> {
                let library = $crate::library::Library::open(names)?;
                Ok($name {
                    $($function: {
                        let address = library.function(stringify!($function))?;
                        // SAFETY: the function of that name has this signature by its manual page, on every version
                        // of the library that goes by one of these names; the library is never unloaded.
                        unsafe {
                            // SAFETY: see above.
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $result>(
                                address.as_ptr(),
                            )
                        }
                    },)*
                })
            }
        }
    };
}

pub(crate) use functions;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        assert!(Library::open(&["libweir-none.so.1"]).err().unwrap().contains("libweir-none.so.1"));
        let library = Library::open(&["libweir-none.so.1", "libc.so.6"]).unwrap();
        assert!(library.function("strlen").is_ok());
        assert_eq!(library.function("no_such_function"), Err("it has no no_such_function".to_owned()));
    }
}
