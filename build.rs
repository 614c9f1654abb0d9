//! Tells the linker how a Node-API addon is put together on this platform.
fn main() {
    napi_build::setup();
}
