//! What a shard does while one process takes over from another (`-R`): `export` on the sending side, `import` on the receiving one.

pub(crate) mod export;
pub(crate) mod import;
mod statements;
