// Undoes the setup of a test when it is over, in reverse order. If one step fails, the others still
// run.

const endings = new WeakMap()

/**
 * Calls `undo` when the test (or suite) `t` is over. Node runs its own hooks in the order of their
 * registration and stops at one that fails. Then a folder would be removed before the processes
 * that write to it end, and the processes would stay.
 */
export function atEnd(t, undo) {
  const known = endings.get(t)
  if (known) {
    known.push(undo)
    return
  }
  const stack = [undo]
  endings.set(t, stack)
  t.after(async () => {
    const errors = []
    for (let next = stack.pop(); next; next = stack.pop()) {
      try {
        await next()
      } catch (error) {
        errors.push(error)
      }
    }
    if (errors.length) throw errors[0]
  })
}
