-- Ends leases. KEYS has a lock for each request, ARGV a token.
-- Answers one value for each: 1 if the token held the lock, 2 if nobody did, 3 if somebody else does; or one error for
-- all, with nothing done.
local KEYS, ARGV, pcall = KEYS, ARGV, redis.pcall

-- One by itself goes without the tables that many share.
if #KEYS == 1 then
  local owner = pcall('GET', KEYS[1])
  if not owner then return { 2 } end
  if type(owner) == 'table' then return owner end
  if owner ~= ARGV[1] then return { 3 } end
  local done = pcall('DEL', KEYS[1])
  return type(done) == 'table' and done or { 1 }
end

local answers, ended, gone = {}, {}, {}
local owners = pcall('MGET', unpack(KEYS))
if owners.err then return owners end
for i = 1, #KEYS do
  local lock, owner = KEYS[i], owners[i]
  if not owner or gone[lock] then
    answers[i] = 2
  elseif owner ~= ARGV[i] then
    answers[i] = 3
  else
    answers[i] = 1
    gone[lock] = true
    ended[#ended + 1] = lock
  end
end
local done = #ended > 0 and pcall('DEL', unpack(ended))
return type(done) == 'table' and done or answers
