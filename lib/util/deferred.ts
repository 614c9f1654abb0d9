/** Makes the error of a rejection; see {@link raise}. */
export type MakeError = () => Error

/**
 * Throws the error that `make` returns. A promise of this library rejects with a `MakeError`, and
 * has `raise` as its `catch`. The error is made there, so its stack has the caller's `await`. The
 * stack of an error that is made earlier would only show the inside of this library.
 */
export function raise(make: MakeError): never {
  throw make()
}

export function ignore(): void {}

export interface Deferred<T> {
  readonly promise: Promise<T>
  readonly resolve: (value: T) => void
  readonly reject: (make: MakeError) => void
}

export function defer<T>(): Deferred<T> {
  let settle: Pick<Deferred<T>, 'resolve' | 'reject'> | undefined
  const promise = new Promise<T>((resolve, reject) => {
    settle = { resolve, reject }
  })
  // The executor has run by now.
  return { promise, ...(settle as NonNullable<typeof settle>) }
}
