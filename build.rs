//! Tells the linker how to link a Node-API addon on this platform, and compiles the functions that
//! have to be in C.
fn main() {
    napi_build::setup();
    if std::env::var_os("CARGO_CFG_UNIX").is_some() {
        let source = "src/store/sqlite/syscalls.c";
        println!("cargo::rerun-if-changed={source}");
        cc::Build::new().file(source).warnings(true).compile("leasehold_syscalls");
    }
}
