// `npm publish` in a checkout would publish a root package without the packages of the platforms.

console.error('A checkout is never published: scripts/pack.mjs makes the packages. See docs/platforms.md')
process.exit(1)
