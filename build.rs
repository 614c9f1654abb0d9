//! Tells the linker how a Node-API addon is put together on this platform, and builds the one function that has to be in C.
fn main() {
    napi_build::setup();
    if std::env::var_os("CARGO_CFG_UNIX").is_some() {
        let source = "src/store/sqlite/syscalls.c";
        println!("cargo::rerun-if-changed={source}");
        cc::Build::new().file(source).warnings(true).compile("leasehold_syscalls");
    }
}
