// `npm publish` in a checkout would publish a root package without the packages of the platforms.

console.error('Not from a checkout: scripts/pack.mjs makes what is published. See docs/platforms.md')
process.exit(1)
