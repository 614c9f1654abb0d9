// What has to be undone when a test is over: last things first, and all of them, whatever fails.

const endings = new WeakMap()

/**
 * Calls `undo` when the test (or suite) `t` is over. Node runs its own hooks first things first and stops at one that
 * fails: a folder would go before the processes that write to it, and they would stay.
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
