-- Lists: the waiting lists of a call, of which there may be hundreds.

--@include idents

--@rarely
local function with_lanes(keys, first, last)
  local found = {}
  for i = first, last do
    local base = string.sub(keys[i], 1, -9)
    found[#found + 1], found[#found + 2], found[#found + 3] = keys[i], base .. ':_turns', base .. ':_later'
  end
  return found
end

-- The waiting lists of a call, given as one text with a key in each line: a function that returns them, split up to an
-- index. A worker may have hundreds, and finds its job in one of the first.
local function lists_from(text)
  local keys, position = {}, 1
  text = text or ''
  return function(last)
    while #keys < last and position <= #text do
      local line_end = string.find(text, '\n', position, true) or #text + 1
      keys[#keys + 1] = string.sub(text, position, line_end - 1)
      position = line_end + 1
    end
    return keys
  end
end

-- The keys that exist if there is something to claim: the lists from one index to another, and the lanes beside them.
local function filled_by(keys, first, last)
  if not knows_limits then return unpack(keys, first, last) end
  return unpack(with_lanes(keys, first, last))
end

-- How many lists to look into, and how many of the other lists to ask about at once.
local FEW, STRETCH = 4, 64

-- The index of the first key that exists, among keys of which at least one does.
--@rarely
local function first_existing(keys, first, last)
  while first < last do
    local middle = math.floor((first + last) / 2)
    if redis.call('EXISTS', filled_by(keys, first, middle)) > 0 then last = middle else first = middle + 1 end
  end
  return first
end

-- The index, from a given one on, of the first list that may have a job; nil if there is no such list.
local function next_filled(lists, first)
  if first <= FEW then
    return lists(first)[first] and first
  end
  while lists(first)[first] do
    local keys = lists(first + STRETCH - 1)
    local last = math.min(first + STRETCH - 1, #keys)
    if redis.call('EXISTS', filled_by(keys, first, last)) > 0 then
      return first_existing(keys, first, last)
    end
    first = last + 1
  end
end
