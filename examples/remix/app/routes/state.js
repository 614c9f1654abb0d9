// What the page shows, for programs.

export const loader = async ({ context }) => Response.json(await context.state())
