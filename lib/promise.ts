/** Makes the error of a rejection; see {@link raise}. */
export type Make = () => Error

/**
 * Promises are rejected with what makes their error, and this makes it, as their `catch`: made there, an error has
 * the lines of those who await it in its stack. Made when the news came in, it would show the inside of this library.
 */
export function raise(make: Make): never {
  throw make()
}

export function ignore(): void {}

export interface Deferred<T> {
  readonly promise: Promise<T>
  readonly resolve: (value: T) => void
  readonly reject: (make: Make) => void
}

export function defer<T>(): Deferred<T> {
  let settle: Pick<Deferred<T>, 'resolve' | 'reject'> | undefined
  const promise = new Promise<T>((resolve, reject) => {
    settle = { resolve, reject }
  })
  // The executor has run by now.
  return { promise, ...(settle as NonNullable<typeof settle>) }
}
