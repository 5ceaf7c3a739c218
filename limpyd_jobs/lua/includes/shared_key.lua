-- Beside: the keys beside the queues of a model, for all of them.

-- Such a key, given the beginning of the keys of one of the queues.
local function shared_key(base, name)
  return string.match(base, '^(.*):[^:]+$') .. ':' .. name
end
