-- Short names for what the other parts use.
local call = redis.call
local match, find, format, sub = string.match, string.find, string.format, string.sub
