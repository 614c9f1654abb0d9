/** Returns a promise, and the function that resolves it. */
export function gate() {
  let pass
  const passed = new Promise((resolve) => {
    pass = resolve
  })
  return { passed, pass }
}
